package bench;

import com.zaxxer.hikari.HikariConfig;
import com.zaxxer.hikari.HikariDataSource;
import java.sql.Connection;
import java.sql.Statement;
import org.apache.qpid.jms.JmsConnectionFactory;

/** How to reach the broker and the database. */
final class Servers {
    private final Options options;

    Servers(Options options) {
        this.options = options;
    }

    JmsConnectionFactory broker() {
        return new JmsConnectionFactory(options.text("url")
                + "?jms.prefetchPolicy.queuePrefetch=" + options.text("prefetch"));
    }

    HikariDataSource pool(int size) {
        HikariConfig config = new HikariConfig();
        config.setJdbcUrl(options.text("jdbc"));
        config.setUsername(options.text("user"));
        config.setPassword(options.text("password"));
        config.setMaximumPoolSize(size);
        return new HikariDataSource(config);
    }

    void execute(String... statements) throws Exception {
        try (HikariDataSource pool = pool(1);
                Connection connection = pool.getConnection();
                Statement statement = connection.createStatement()) {
            for (String sql : statements) {
                statement.execute(sql);
            }
        }
    }
}
