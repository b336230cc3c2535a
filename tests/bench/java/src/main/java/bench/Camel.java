package bench;

import com.zaxxer.hikari.HikariDataSource;
import org.apache.camel.builder.RouteBuilder;
import org.apache.camel.component.amqp.AMQPComponent;
import org.apache.camel.impl.DefaultCamelContext;
import org.apache.camel.processor.idempotent.jdbc.JdbcMessageIdRepository;

/** Apache Camel's idempotentConsumer with its JDBC repository. */
final class Camel {
    static final String TABLE = "bench_java_camel";

    private Camel() {
    }

    static void consume(Run run, Servers servers, int consumers) throws Exception {
        // Camel's own default, AUTO_ACKNOWLEDGE, acknowledges before the route
        // has run, and so loses messages in a crash.
        String endpoint = "amqp:queue:" + run.queue
                + "?acknowledgementModeName=CLIENT_ACKNOWLEDGE&concurrentConsumers=" + consumers;
        try (HikariDataSource pool = servers.pool(consumers + 1);
                DefaultCamelContext camel = new DefaultCamelContext()) {
            camel.getShutdownStrategy().setTimeout(10);
            camel.addComponent("amqp", new AMQPComponent(servers.broker()));
            // Makes its table by itself when the route starts.
            JdbcMessageIdRepository repository = new JdbcMessageIdRepository(pool, "bench");
            repository.setTableName(TABLE);
            camel.addRoutes(new RouteBuilder() {
                @Override
                public void configure() {
                    from(endpoint)
                        .process(e -> run.received())
                        .idempotentConsumer(header("JMSMessageID"), repository)
                            .process(e -> run.handle())
                        .end()
                        .process(e -> run.settled());
                }
            });
            camel.start();
            run.await();
        }
    }
}
