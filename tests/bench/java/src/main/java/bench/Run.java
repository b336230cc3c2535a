package bench;

import com.sun.management.OperatingSystemMXBean;
import java.io.IOException;
import java.lang.management.ManagementFactory;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Locale;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicLong;

/** One run over one queue: the handler, what it counts, and the clock. */
final class Run {
    private static final OperatingSystemMXBean SYSTEM =
            (OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
    private static final int STALL_SECONDS = 30;

    final String queue;
    private final int expected;
    private final AtomicLong handled = new AtomicLong();
    private final AtomicLong settled = new AtomicLong();
    private final AtomicBoolean begun = new AtomicBoolean();
    private final CountDownLatch done = new CountDownLatch(1);
    private volatile long first;
    private volatile long firstCpu;
    private volatile long last;
    private volatile long lastCpu;

    Run(String queue, int expected) {
        this.queue = queue;
        this.expected = expected;
    }

    /** For every delivery, before anything is done with it. */
    void received() {
        if (!begun.get() && begun.compareAndSet(false, true)) {
            firstCpu = SYSTEM.getProcessCpuTime();
            first = System.nanoTime();
        }
    }

    /** The empty handler. */
    void handle() {
        handled.incrementAndGet();
    }

    /** A delivery was dealt with, whether it was handled or a duplicate. */
    void settled() {
        if (settled.incrementAndGet() == expected) {
            last = System.nanoTime();
            lastCpu = SYSTEM.getProcessCpuTime();
            done.countDown();
        }
    }

    boolean isDone() {
        return done.getCount() == 0;
    }

    /** Waits for the last delivery as long as there is progress. */
    void await() throws Exception {
        long before = -1;
        while (!done.await(STALL_SECONDS, TimeUnit.SECONDS)) {
            long now = settled.get();
            if (now == before) {
                throw new IllegalStateException(
                        queue + ": stalled after " + now + " of " + expected);
            }
            before = now;
        }
    }

    /** As the C contenders print it. */
    String json() throws IOException {
        return String.format(Locale.ROOT,
                "{\"settled\":%d,\"handled\":%d,\"first\":%.6f,\"last\":%.6f,"
                        + "\"cpu\":%.6f,\"rss_kb\":%d}",
                settled.get(), handled.get(), first / 1e9, last / 1e9,
                (lastCpu - firstCpu) / 1e9, peakRssKb());
    }

    private static long peakRssKb() throws IOException {
        for (String line : Files.readAllLines(Path.of("/proc/self/status"))) {
            if (line.startsWith("VmHWM:")) {
                return Long.parseLong(line.replaceAll("[^0-9]", ""));
            }
        }
        return -1;
    }
}
