#include "asker.h"

#include "support.h"

#include <check.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct asker {
    idemi_mailbox_t mailbox;
    idemi_submitter_t *submitter;
    size_t out; /* asked and not answered */
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    /* Guarded by mutex. */
    bool has_mail;
    int mails;
    int outages;
    int recoveries;
};

static void wake(void *context)
{
    asker_t *asker = context;

    pthread_mutex_lock(&asker->mutex);
    asker->has_mail = true;
    asker->mails++;
    pthread_cond_signal(&asker->changed);
    pthread_mutex_unlock(&asker->mutex);
}

static void watch(void *context, bool available, const idem_error_t *err)
{
    asker_t *asker = context;

    pthread_mutex_lock(&asker->mutex);
    if (available) {
        asker->recoveries++;
    } else {
        asker->outages += err != NULL;
    }
    pthread_mutex_unlock(&asker->mutex);
}

asker_t *asker_create(idem_store_t *store)
{
    asker_t *asker = calloc(1, sizeof *asker);
    pthread_condattr_t monotonic;

    ck_assert_ptr_nonnull(asker);
    ck_assert(idemi_mailbox_init(&asker->mailbox));
    pthread_mutex_init(&asker->mutex, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&asker->changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
    idemi_mailbox_set_wake(&asker->mailbox, wake, asker);
    ck_assert_int_eq(idemi_submitter_create(&asker->submitter, store,
                                            &asker->mailbox, watch, asker),
                     IDEM_OK);
    return asker;
}

void asker_destroy(asker_t *asker)
{
    if (asker == NULL) {
        return;
    }
    idemi_submitter_destroy(asker->submitter);
    idemi_mailbox_run(&asker->mailbox, 0);
    idemi_mailbox_finish(&asker->mailbox);
    pthread_cond_destroy(&asker->changed);
    pthread_mutex_destroy(&asker->mutex);
    free(asker);
}

static void answered(idemi_task_t *task, int64_t now_ms)
{
    question_t *question = (question_t *)task;

    (void)now_ms;
    question->asker->out--;
}

void question_set(question_t *question, idemi_op_kind_t kind, const char *key,
                  const char *token)
{
    size_t key_size = strlen(key);
    size_t token_size = strlen(token);

    ck_assert_uint_le(key_size, IDEM_KEY_BYTES);
    ck_assert_uint_le(token_size, IDEM_TOKEN_BYTES);
    memset(question, 0, sizeof *question);
    memcpy(question->key, key, key_size);
    memcpy(question->token, token, token_size);
    question->op.kind = kind;
    question->op.key = question->key;
    question->op.key_size = key_size;
    question->op.token = question->token;
    question->op.task.run = answered;
}

void asker_submit(asker_t *asker, question_t *questions, size_t count)
{
    idemi_tasks_t ops = {NULL, NULL};

    for (size_t i = 0; i < count; i++) {
        questions[i].asker = asker;
        questions[i].op.answer = IDEMI_ANSWER_NONE;
        idemi_tasks_add(&ops, &questions[i].op.task);
    }
    asker->out += count;
    idemi_submitter_submit(asker->submitter, &ops);
}

bool asker_wait(asker_t *asker, int64_t timeout_ms)
{
    int64_t end_ms = test_now_ms() + test_scaled_ms(timeout_ms);
    struct timespec end = {(time_t)(end_ms / 1000),
                           (long)(end_ms % 1000) * 1000000L};

    while (asker->out > 0) {
        bool is_late = false;
        pthread_mutex_lock(&asker->mutex);
        while (!asker->has_mail && !is_late) {
            is_late = pthread_cond_timedwait(&asker->changed, &asker->mutex,
                                             &end) != 0;
        }
        asker->has_mail = false;
        pthread_mutex_unlock(&asker->mutex);
        idemi_mailbox_run(&asker->mailbox, 0);
        if (is_late) {
            return asker->out == 0;
        }
    }
    return true;
}

bool asker_ask(asker_t *asker, question_t *questions, size_t count,
               int64_t timeout_ms)
{
    asker_submit(asker, questions, count);
    return asker_wait(asker, timeout_ms);
}

void asker_abandon(asker_t *asker)
{
    idemi_submitter_abandon(asker->submitter);
}

static int counter(asker_t *asker, const int *number)
{
    int value;

    pthread_mutex_lock(&asker->mutex);
    value = *number;
    pthread_mutex_unlock(&asker->mutex);
    return value;
}

int asker_outages(asker_t *asker)
{
    return counter(asker, &asker->outages);
}

int asker_recoveries(asker_t *asker)
{
    return counter(asker, &asker->recoveries);
}

int asker_mails(asker_t *asker)
{
    return counter(asker, &asker->mails);
}

const char *answer_name(idemi_answer_t answer)
{
    static const char *const names[] = {"none",        "new",     "done",
                                        "in progress", "expired", "lost",
                                        "freed",       "absent",  "failed"};

    return (size_t)answer < sizeof names / sizeof *names ? names[answer] : "?";
}
