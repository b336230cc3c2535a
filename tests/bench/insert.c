/* What one committed row costs where nothing else is asked of the database:
 * the measure for the latency of a delivery. */
#include "bench.h"

#include <libpq-fe.h>
#include <stdio.h>
#include <stdlib.h>

bool bench_insert(bench_t *bench)
{
    PGconn *pg = PQconnectdb(bench->dsn);
    double *seconds = calloc((size_t)bench->count, sizeof *seconds);
    char sql[256];
    uint64_t done = 0;

    (void)snprintf(sql, sizeof sql,
                   "INSERT INTO %s (message_id, state, recorded_at, expires_at)"
                   " VALUES ($1, 'CONFIRMED', now(), now())",
                   bench->table);
    PGresult *result = PQprepare(pg, "insert", sql, 1, NULL);
    double start = bench_now();
    while (seconds && PQresultStatus(result) == PGRES_COMMAND_OK &&
           done < bench->count) {
        char id[BENCH_ID_BYTES];
        const char *values[] = {id};
        bench_id(bench, done, id);
        bench_sleep_until(start + (double)done / bench->rate);
        PQclear(result);
        double sent = bench_now();
        result = PQexecPrepared(pg, "insert", 1, values, NULL, NULL, 0);
        seconds[done] = bench_now() - sent;
        done++;
    }
    if (PQresultStatus(result) == PGRES_COMMAND_OK && seconds) {
        bench_print_percentiles(seconds, (size_t)done);
    } else {
        (void)fprintf(stderr, "insert: %s", PQerrorMessage(pg));
        done = 0;
    }
    PQclear(result);
    PQfinish(pg);
    free(seconds);
    return done == bench->count;
}
