#ifndef IDEM_TEST_PEER_H
#define IDEM_TEST_PEER_H

/*
 * A scripted AMQP 1.0 peer: it plays a broker towards a consumer under test.
 *
 * It listens on a free loopback port with one thread of its own. It lets
 * clients log in, echoes or refuses their receivers, sends them messages as
 * their credit allows, and records what it sees. Messages are raw bytes, so
 * that empty, cut and hostile ones can be sent.
 *
 * Threads: every function may be called from any thread, and from the hook;
 * the waiting ones from any thread but the hook's. A peer belongs to the
 * process that created it: under Check's fork mode create it in the test or in
 * a checked fixture.
 * Times are milliseconds; timeouts are scaled by CK_TIMEOUT_MULTIPLIER.
 *
 * How it is built, and so what it can do: it owns its sockets and drives
 * pn_connection_driver_t instead of a proactor, and speaks the SASL layer
 * itself. Hence any SASL mechanisms and outcome, transfers of any size down to
 * one byte, raw bytes between frames, reset against orderly end of the TCP
 * connection. What it can not do: TLS; receivers of its own (a sender that
 * attaches is refused); choose the first delivery-id (Proton begins at 0),
 * except by peer_inject(); drop a SYN.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct peer peer_t;
typedef struct peer_event peer_event_t;

typedef enum peer_event_kind {
    PEER_CONNECTED,    /* a TCP connection was accepted */
    PEER_SASL,         /* the client chose a mechanism */
    PEER_OPEN,         /* the client's open */
    PEER_BEGIN,        /* the client's begin */
    PEER_ATTACH,       /* the client's attach */
    PEER_FLOW,         /* the client's flow on a link */
    PEER_DISPOSITION,  /* an outcome, or a settlement, of one delivery */
    PEER_DETACH,       /* the client's detach, unasked or in answer */
    PEER_END,          /* the client's end */
    PEER_CLOSE,        /* the client's close */
    PEER_DISCONNECTED, /* the TCP connection is gone */
    PEER_EVENT_KINDS
} peer_event_kind_t;

/* Strings live until peer_destroy(); none is NULL. */
struct peer_event {
    peer_event_kind_t kind;
    uint64_t sequence; /* order over all kinds, from 1 */
    int64_t at_ms;     /* since peer_create() */
    int connection;    /* 1, 2, ... in the order of acceptance */
    int link;          /* 1, 2, ... in the order of attach; else 0 */
    union {
        struct {
            const char *mechanism;
            const char *user; /* PLAIN only */
            int outcome;      /* what the peer answered */
        } sasl;
        struct {
            const char *container_id;
            const char *hostname;
            uint32_t max_frame; /* 0: none given */
            uint16_t channel_max;
            uint32_t idle_timeout_ms; /* as sent, so half the client's own */
        } open;
        struct {
            const char *name;
            const char *address;
            const char *capabilities; /* sorted as sent, blank between */
            const char *filter;       /* Proton's text of the filter map */
            int distribution_mode;    /* pn_distribution_mode_t */
            int snd_settle_mode;      /* pn_snd_settle_mode_t */
            int rcv_settle_mode;      /* pn_rcv_settle_mode_t */
            int durability;           /* pn_durability_t */
            int expiry_policy;        /* pn_expiry_policy_t */
            uint64_t max_message_size;
            bool is_receiver;
            bool refused; /* by the peer */
        } attach;
        struct {
            int credit;    /* what the peer may still send */
            int unsettled; /* what the client has in hand */
            bool drain;
        } flow;
        struct {
            int message;    /* number of the message, from peer_send() */
            bool late;      /* its link, session or delivery was over */
            int attempt;    /* 1 for its first delivery */
            uint64_t state; /* PN_ACCEPTED, ...; 0: no state at all */
            bool settled;
            bool failed;             /* modified: delivery-failed */
            bool undeliverable_here; /* modified */
            const char *condition;   /* rejected */
            const char *description; /* rejected */
        } disposition;
        struct {
            const char *condition;
            const char *description;
            bool closed; /* detach: closed=true, not a mere detach */
        } end;           /* PEER_DETACH, PEER_END, PEER_CLOSE */
        struct {
            bool was_closed; /* a close from the client came before */
            bool by_peer;    /* the peer cut it */
        } disconnected;
    };
};

/**
 * Called on the peer's thread for each event, right after it was recorded and
 * before the peer answers it. It may call everything that does not wait.
 * It must not assert.
 */
typedef void (*peer_hook_t)(peer_t *peer, const peer_event_t *event,
                            void *user);

/* Strings are not copied: they must live as long as the peer. */
typedef struct peer_options {
    /* Login. With a user, PLAIN is offered and checked, else ANONYMOUS. */
    const char *user;
    const char *password;
    const char *mechanisms;    /* offered instead, blank between */
    int sasl_outcome;          /* not 0: the answer to every login */
    bool no_sasl;              /* answer the SASL header with plain AMQP's */
    bool cut_after_mechanisms; /* FIN in the middle of the login */

    /* The peer's open. */
    const char *container_id;   /* default "peer" */
    uint32_t max_frame;         /* largest frame the client may send */
    uint16_t channel_max;       /* 0: Proton's default */
    uint32_t idle_timeout_ms;   /* as announced; enforced at twice this */
    const char *open_condition; /* open, then close with this error */
    const char *open_description;
    bool no_open_answer; /* log in, then say nothing to the open */

    /* Its answer to attaches. */
    const char *attach_condition; /* null source, detach with this error */
    const char *attach_description;
    int attach_refusals; /* how many are refused; 0 with a condition: all */
    const char *reply_address; /* instead of an echo */
    bool drop_capabilities;    /* no capability in the reply */
    bool drop_filter;          /* no filter in the reply */
    bool reply_settled;        /* snd-settle-mode settled */
    bool no_attach_answer;

    /* Transfers. */
    size_t fragment_bytes; /* payload of a transfer; 0: as the frame allows */
    bool empty_last_frame; /* the last transfer of a message has no payload */
    bool hold_drain;       /* leave drain unanswered until this is reset */

    /* What becomes of messages. */
    bool redeliver;   /* released and modified ones go out again at once */
    bool forget_lost; /* unsettled ones of a lost link do not go out again */
    bool settle_back; /* settle what the client only gave a state */
    bool counts_only; /* keep no records of flows, dispositions, messages */

    peer_hook_t hook;
    void *hook_user;
} peer_options_t;

typedef struct peer_message {
    const void *bytes;   /* copied */
    size_t size;         /* 0: a transfer without payload */
    const char *address; /* only to links with this source; NULL: to any */
    const void *tag;     /* delivery-tag; NULL: a counter of the link */
    size_t tag_bytes;
    bool settled;    /* pre-settled */
    size_t hold_at;  /* not 0: stop for ever after that many bytes */
    size_t abort_at; /* not 0: abort the delivery after that many bytes */
} peer_message_t;

typedef struct peer_stats {
    int connections; /* ever accepted */
    int live_connections;
    int live_links;      /* attached and not refused */
    int queued;          /* messages not yet sent */
    int transfers;       /* deliveries begun, redeliveries included */
    int unsettled;       /* deliveries the client holds */
    int credit;          /* over all live links */
    int max_unsettled;   /* the most one link ever held */
    int max_outstanding; /* the most one link's unsettled + credit ever was */
    int dispositions;
    int accepted; /* dispositions by state */
    int released;
    int modified; /* with and without delivery-failed */
    int modified_failed;
    int rejected;
    int without_state;          /* settled without an outcome: never right */
    int presettled;             /* sent settled */
    int64_t longest_silence_ms; /* between two reads of an open connection */
} peer_stats_t;

/** NULL options are all zero. Returns NULL after a line on stderr. */
peer_t *peer_create(const peer_options_t *options);
/** Ends all connections (FIN) and the thread. NULL is fine. */
void peer_destroy(peer_t *peer);

int peer_port(const peer_t *peer);
/** "amqp://127.0.0.1:port", valid until peer_destroy(). */
const char *peer_url(const peer_t *peer);

/** Options for what happens from now on. */
peer_options_t peer_options(peer_t *peer);
void peer_configure(peer_t *peer, const peer_options_t *options);

/* Messages. Both return the number of the message: 0, 1, 2, ... */
int peer_send(peer_t *peer, const peer_message_t *message);
int peer_send_bytes(peer_t *peer, const void *bytes, size_t size);
/** Put a queued, held or unsettled message's copy at the queue's end. */
int peer_send_again(peer_t *peer, int message);
/** Drop what is queued. */
void peer_purge(peer_t *peer);
/** While paused nothing is sent; what is queued stays. */
void peer_pause(peer_t *peer, bool paused);

/* Breaks. An address of NULL means every link. */
void peer_detach(peer_t *peer, const char *address, const char *condition,
                 const char *description);
/** A detach with closed=false and no error. */
void peer_detach_only(peer_t *peer, const char *address);
/** End the sessions that have such a link. */
void peer_end_session(peer_t *peer, const char *address, const char *condition,
                      const char *description);
void peer_close_connection(peer_t *peer, const char *condition,
                           const char *description);
/** End all TCP connections, by RST or FIN; they are gone on return. */
void peer_cut(peer_t *peer, bool reset);
/** Neither read nor write, heartbeats included; TCP lives on. */
void peer_silence(peer_t *peer, bool silent);
/** Refuse TCP connections, or listen again on the same port. */
bool peer_listen(peer_t *peer, bool on);
/**
 * Settle a delivery before the client does, with a state (0: none) and, for
 * PN_REJECTED, a condition. False when the message is not in the client's hand.
 */
bool peer_settle(peer_t *peer, int message, uint64_t state,
                 const char *condition);
/** Raw bytes to every connection, between two frames. */
void peer_inject(peer_t *peer, const void *bytes, size_t size);

/* Records. */
peer_stats_t peer_stats(peer_t *peer);
int peer_count(peer_t *peer, peer_event_kind_t kind);
/** The nth event of a kind, from 0; -1 is the last. False: there is none. */
bool peer_event(peer_t *peer, peer_event_kind_t kind, int n,
                peer_event_t *event);
/** The last disposition of a message. */
bool peer_outcome(peer_t *peer, int message, peer_event_t *event);

/* Waits; false at the deadline. */
bool peer_wait(peer_t *peer, peer_event_kind_t kind, int count,
               int64_t timeout_ms);
/** Until the stats, looked at after each change, please the condition. */
bool peer_wait_until(peer_t *peer,
                     bool (*condition)(const peer_stats_t *stats, void *user),
                     void *user, int64_t timeout_ms);
bool peer_wait_accepted(peer_t *peer, int count, int64_t timeout_ms);
bool peer_wait_dispositions(peer_t *peer, int count, int64_t timeout_ms);
bool peer_wait_unsettled(peer_t *peer, int count, int64_t timeout_ms);
bool peer_wait_credit(peer_t *peer, int at_least, int64_t timeout_ms);

#endif
