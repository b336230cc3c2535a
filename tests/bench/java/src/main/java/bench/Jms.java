package bench;

import com.zaxxer.hikari.HikariDataSource;
import jakarta.jms.Connection;
import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.Session;
import java.util.ArrayList;
import java.util.List;

/**
 * Qpid JMS itself, without a store or with claim and confirm: one connection,
 * and a session and a thread for each worker.
 */
final class Jms {
    /** Of Qpid JMS: acknowledge() settles that message alone. */
    private static final int INDIVIDUAL_ACKNOWLEDGE = 101;

    /** Of JMS_AMQP_ACK_TYPE: put back, delivery count + 1. */
    private static final int MODIFIED_FAILED = 4;

    private Jms() {
    }

    static void consume(Run run, Servers servers, int workers, boolean hasStore)
            throws Exception {
        try (HikariDataSource pool = hasStore ? servers.pool(workers) : null;
                Connection connection = servers.broker().createConnection()) {
            List<Thread> threads = new ArrayList<>();
            for (int i = 0; i < workers; i++) {
                Session session = connection.createSession(false, INDIVIDUAL_ACKNOWLEDGE);
                MessageConsumer consumer =
                        session.createConsumer(session.createQueue(run.queue));
                ClaimStore claims = hasStore ? new ClaimStore(pool.getConnection()) : null;
                Thread thread = new Thread(() -> work(run, consumer, claims));
                threads.add(thread);
                thread.start();
            }
            connection.start();
            run.await();
            for (Thread thread : threads) {
                thread.join();
            }
        }
    }

    private static void work(Run run, MessageConsumer consumer, ClaimStore claims) {
        try (claims) {
            while (!run.isDone()) {
                Message message = consumer.receive(200);
                if (message != null) {
                    run.received();
                    one(run, message, claims);
                }
            }
        } catch (Exception e) {
            e.printStackTrace();
        }
    }

    private static void one(Run run, Message message, ClaimStore claims) throws Exception {
        String id = message.getJMSMessageID();
        ClaimStore.Claim claim = claims == null ? ClaimStore.Claim.MINE : claims.claim(id);
        if (claim == ClaimStore.Claim.IN_PROGRESS) {
            putBack(message);
            return;
        }
        if (claim == ClaimStore.Claim.MINE) {
            try {
                run.handle();
            } catch (RuntimeException e) {
                if (claims != null) {
                    claims.release(id);
                }
                putBack(message);
                return;
            }
            if (claims != null) {
                claims.confirm(id);
            }
        }
        message.acknowledge();
        run.settled();
    }

    private static void putBack(Message message) throws Exception {
        message.setIntProperty("JMS_AMQP_ACK_TYPE", MODIFIED_FAILED);
        message.acknowledge();
    }
}
