package bench;

/**
 * One contender, one run. It first consumes a queue of its own to warm up, in
 * this JVM, and makes its table anew. It then prints a line, waits for one, and
 * consumes the queue that counts.
 *
 * Arguments: mode (plain, jdbc, camel), workers, queue, count, warm_queue,
 * warm_count, url, prefetch, jdbc, user, password.
 */
public final class Main {
    private Main() {
    }

    public static void main(String[] arguments) {
        try {
            run(new Options(arguments));
            System.exit(0);
        } catch (Exception e) {
            e.printStackTrace();
            System.exit(1); // though threads are left that would go on
        }
    }

    private static void run(Options options) throws Exception {
        Servers servers = new Servers(options);
        String mode = options.text("mode");
        int workers = options.number("workers");

        reset(mode, servers);
        consume(mode, workers, servers,
                new Run(options.text("warm_queue"), options.number("warm_count")));
        reset(mode, servers);
        // What the warm-up left is not to be collected while the clock runs.
        System.gc();
        System.out.println("{}");
        System.in.read();
        Run run = new Run(options.text("queue"), options.number("count"));
        consume(mode, workers, servers, run);
        System.out.println(run.json());
    }

    private static void consume(String mode, int workers, Servers servers, Run run)
            throws Exception {
        switch (mode) {
            case "plain" -> Jms.consume(run, servers, workers, false);
            case "jdbc" -> Jms.consume(run, servers, workers, true);
            case "camel" -> Camel.consume(run, servers, workers);
            default -> throw new IllegalArgumentException("no mode " + mode);
        }
    }

    private static void reset(String mode, Servers servers) throws Exception {
        switch (mode) {
            case "jdbc" -> servers.execute(ClaimStore.DDL);
            case "camel" -> servers.execute("DROP TABLE IF EXISTS " + Camel.TABLE);
            default -> { }
        }
    }
}
