package bench;

import java.util.HashMap;
import java.util.Map;

/** The arguments: name=value each. */
final class Options {
    private final Map<String, String> values = new HashMap<>();

    Options(String[] arguments) {
        for (String argument : arguments) {
            String[] parts = argument.split("=", 2);
            if (parts.length != 2) {
                throw new IllegalArgumentException("not name=value: " + argument);
            }
            values.put(parts[0], parts[1]);
        }
    }

    String text(String name) {
        String value = values.get(name);
        if (value == null) {
            throw new IllegalArgumentException(name + " is missing");
        }
        return value;
    }

    int number(String name) {
        return Integer.parseInt(text(name));
    }
}
