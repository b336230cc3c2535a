package bench;

import java.sql.Connection;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.time.Duration;
import java.time.OffsetDateTime;
import java.time.ZoneOffset;
import java.util.UUID;

/**
 * Claim, confirm and release over JDBC on one connection, each its own
 * transaction, as such stores are written in Java.
 */
final class ClaimStore implements AutoCloseable {
    enum Claim { MINE, DONE, IN_PROGRESS }

    static final String TABLE = "bench_java_claim";

    /** With the index that a purge by expiry asks for. */
    static final String[] DDL = {
        "DROP TABLE IF EXISTS " + TABLE,
        "CREATE TABLE " + TABLE + " (message_id VARCHAR(255) NOT NULL PRIMARY KEY,"
            + " state VARCHAR(16) NOT NULL, claimed_by VARCHAR(64),"
            + " recorded_at TIMESTAMPTZ NOT NULL, expires_at TIMESTAMPTZ NOT NULL)",
        "CREATE INDEX " + TABLE + "_expiry ON " + TABLE + " (expires_at)",
    };

    private static final Duration LEASE = Duration.ofMinutes(5);
    private static final Duration RETENTION = Duration.ofDays(7);
    private static final String UNIQUE_VIOLATION = "23505";

    private final String owner = UUID.randomUUID().toString();
    private final Connection connection;
    private final PreparedStatement insert;
    private final PreparedStatement takeOver;
    private final PreparedStatement state;
    private final PreparedStatement confirm;
    private final PreparedStatement release;

    ClaimStore(Connection connection) throws SQLException {
        this.connection = connection;
        insert = connection.prepareStatement("INSERT INTO " + TABLE
                + " (message_id, state, claimed_by, recorded_at, expires_at)"
                + " VALUES (?, 'CLAIMED', ?, ?, ?)");
        takeOver = connection.prepareStatement("UPDATE " + TABLE
                + " SET state = 'CLAIMED', claimed_by = ?, recorded_at = ?, expires_at = ?"
                + " WHERE message_id = ? AND expires_at <= ?");
        state = connection.prepareStatement("SELECT state FROM " + TABLE
                + " WHERE message_id = ?");
        confirm = connection.prepareStatement("UPDATE " + TABLE
                + " SET state = 'CONFIRMED', claimed_by = NULL, recorded_at = ?, expires_at = ?"
                + " WHERE message_id = ?");
        release = connection.prepareStatement("DELETE FROM " + TABLE
                + " WHERE message_id = ? AND state = 'CLAIMED' AND claimed_by = ?");
    }

    Claim claim(String id) throws SQLException {
        OffsetDateTime now = OffsetDateTime.now(ZoneOffset.UTC);
        insert.setString(1, id);
        insert.setString(2, owner);
        insert.setObject(3, now);
        insert.setObject(4, now.plus(LEASE));
        try {
            insert.executeUpdate();
            return Claim.MINE;
        } catch (SQLException e) {
            if (!UNIQUE_VIOLATION.equals(e.getSQLState())) {
                throw e;
            }
        }
        takeOver.setString(1, owner);
        takeOver.setObject(2, now);
        takeOver.setObject(3, now.plus(LEASE));
        takeOver.setString(4, id);
        takeOver.setObject(5, now);
        if (takeOver.executeUpdate() == 1) {
            return Claim.MINE;
        }
        state.setString(1, id);
        try (ResultSet row = state.executeQuery()) {
            return row.next() && row.getString(1).equals("CONFIRMED")
                    ? Claim.DONE : Claim.IN_PROGRESS;
        }
    }

    void confirm(String id) throws SQLException {
        OffsetDateTime now = OffsetDateTime.now(ZoneOffset.UTC);
        confirm.setObject(1, now);
        confirm.setObject(2, now.plus(RETENTION));
        confirm.setString(3, id);
        if (confirm.executeUpdate() != 1) {
            throw new SQLException("the claim of " + id + " is gone");
        }
    }

    void release(String id) throws SQLException {
        release.setString(1, id);
        release.setString(2, owner);
        release.executeUpdate();
    }

    @Override
    public void close() throws SQLException {
        connection.close();
    }
}
