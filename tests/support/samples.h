#ifndef IDEM_TEST_SAMPLES_H
#define IDEM_TEST_SAMPLES_H

#include "encoded.h"

#include <stddef.h>

#define SAMPLE_COUNT 27

/* A message with every section, in which each kind of id, container and body
 * has its turn. */
typedef struct sample {
    encoded_t message;
    size_t bare_start;  /* where the properties begin */
    size_t bare_end;    /* where the body ends */
    size_t cut_ends[3]; /* where a cut leaves a message: after the properties,
                           the application properties, the body */
} sample_t;

/* Starts as {0}; each call writes over the one before. */
void sample_write(sample_t *sample, unsigned index);
void sample_finish(sample_t *sample);

#endif
