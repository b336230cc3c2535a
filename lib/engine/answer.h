#ifndef IDEMI_ANSWER_H
#define IDEMI_ANSWER_H

#include "engine/flow.h"

/* What the store's answers lead to (steps 3 and 7), and a handler's. */

void idemi_answer_claim(idemi_engine_t *engine, idemi_entry_t *entry);
void idemi_answer_confirm(idemi_engine_t *engine, idemi_entry_t *entry);
void idemi_answer_renewal(idemi_engine_t *engine, idemi_entry_t *entry);

/* Step 6: entry->settlement is what the handler said. */
void idemi_answer_conclude(idemi_engine_t *engine, idemi_entry_t *entry);

/* The timer of a delivery whose claim is ours: renew it, or face its end. */
void idemi_answer_renew_due(idemi_engine_t *engine, idemi_entry_t *entry);

#endif
