/* artemis-queue URL QUEUE [ATTRIBUTE...]: prints "attribute value" lines, for
   shell scripts. A queue that is not there has -1 everywhere. */

#include "management.h"

#include <stdio.h>

int main(int argc, char **argv)
{
    static const char *const usual[] = {
        "messageCount",  "deliveringCount",      "scheduledCount",
        "messagesAdded", "messagesAcknowledged", "messagesKilled",
        "consumerCount",
    };
    management_t *management = NULL;
    int count = (int)(sizeof usual / sizeof usual[0]);

    if (argc < 3) {
        fprintf(stderr, "usage: %s URL QUEUE [ATTRIBUTE...]\n", argv[0]);
        return 2;
    }
    management = management_open(argv[1]);
    if (management == NULL) {
        return 1;
    }
    if (argc > 3) {
        count = argc - 3;
    }
    for (int i = 0; i < count; i++) {
        const char *attribute = argc > 3 ? argv[3 + i] : usual[i];

        printf("%s %lld\n", attribute,
               (long long)management_queue(management, argv[2], attribute));
    }
    management_close(management);
    return 0;
}
