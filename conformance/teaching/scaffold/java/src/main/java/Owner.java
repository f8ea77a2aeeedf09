import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.io.UncheckedIOException;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.charset.CharacterCodingException;
import java.nio.charset.StandardCharsets;
import java.nio.file.FileAlreadyExistsException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.stream.Stream;

/**
 * My commit owner.
 *
 * <p>What is here at the beginning: the loop, the answer to `hello`, the file tools, and `observe`, `plant` and `remove`,
 * by which the kit sees and changes the log. Everything else is yours to write: one method for each operation, which
 * returns the answer. An operation that is not here is answered `unsupported`.
 */
final class Owner implements Messages.Operations {
    static final String NAME = "my-owner";

    /** What the owner promises: see "Profiles" on the page TEST_YOUR_OWNER.md. */
    static final List<String> PROFILES = List.of("core", "version-0-by-owner", "staged");

    /** What the owner knows of one table. */
    static final class TableState {
        String name; // what clients call it
        Path log; // its folder _delta_log
    }

    /** By the table's reference, which is `table` in later requests. */
    final Map<String, TableState> tables = new HashMap<>();

    @Override
    public Messages.Answer hello(Messages.Hello request) {
        return new Messages.Identity(NAME, "1", 1, "owner", PROFILES, List.of("managedCommit"),
                Map.of("managedCommit", List.of("staged")), Map.of(), false, null, List.of(), List.of());
    }

    // The eyes and hands of the kit, for tables in a folder of this machine

    /** The log as an external observer lists it. */
    @Override
    public Messages.Answer observe(Messages.Observe request) {
        Path log = logOf(request.table());
        List<Messages.LogFile> files = new ArrayList<>();
        if (Files.exists(log)) {
            try (Stream<Path> paths = Files.walk(log)) {
                for (Path path : paths.filter(Files::isRegularFile).sorted().toList()) {
                    byte[] bytes = Files.readAllBytes(path);
                    String name = log.relativize(path).toString().replace('\\', '/');
                    files.add(new Messages.LogFile(name, bytes.length, textOf(bytes), null));
                }
            } catch (IOException error) {
                throw new UncheckedIOException(error);
            }
        }
        return new Messages.Observation(files);
    }

    /** Write a file past the owner, as another process would. */
    @Override
    public Messages.Answer plant(Messages.Plant request) {
        Path file = logOf(request.table()).resolve(request.file());
        if (!request.ifAbsent()) {
            removeIfPresent(file);
        }
        boolean written = putIfAbsent(file, request.content());
        return written ? new Messages.Done() : new Messages.Conflict(null, null, null);
    }

    @Override
    public Messages.Answer remove(Messages.Remove request) {
        removeIfPresent(logOf(request.table()).resolve(request.file()));
        return new Messages.Done();
    }

    /** Of a table of this owner, or of one that the kit makes at a path. */
    private Path logOf(String reference) {
        TableState table = tables.get(reference);
        return table == null ? Path.of(reference, "_delta_log") : table.log;
    }

    // Tools

    /** The folder for everything that must survive a restart. */
    static final Path HOME = Path.of(System.getenv().getOrDefault("CONFORMANCE_DIRECTORY",
            System.getProperty("java.io.tmpdir") + "/" + NAME + "-" + ProcessHandle.current().pid()));

    /** A version in the name of a file. */
    static String digits(long version) {
        return String.format("%020d", version);
    }

    /** Create a whole, durable file. False: there is one already, and it stays as it is. */
    static boolean putIfAbsent(Path path, String text) {
        Path temporary = path.resolveSibling(path.getFileName() + ".tmp");
        try {
            Files.createDirectories(path.getParent());
            Files.deleteIfExists(temporary); // of a crash; it may be a link to the file
            try (FileChannel file = FileChannel.open(temporary, StandardOpenOption.CREATE_NEW, StandardOpenOption.WRITE)) {
                ByteBuffer bytes = ByteBuffer.wrap(text.getBytes(StandardCharsets.UTF_8));
                while (bytes.hasRemaining()) {
                    file.write(bytes);
                }
                file.force(true);
            }
            try {
                Files.createLink(path, temporary); // fails if the file exists: the one atomic step
            } catch (FileAlreadyExistsException exists) {
                return false;
            } finally {
                Files.delete(temporary);
            }
            try (FileChannel folder = FileChannel.open(path.getParent(), StandardOpenOption.READ)) {
                folder.force(true);
            }
            return true;
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }

    static void removeIfPresent(Path path) {
        try {
            Files.deleteIfExists(path);
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }

    /** The content of a commit's file: one action, already JSON, on each line. */
    static String contentOf(List<String> actions) {
        return String.join("\n", actions) + "\n";
    }

    /** The same actions; the metadata names this owner, so that writers know where to send requests. */
    static List<String> withOwner(List<String> actions) throws JsonProcessingException {
        List<String> named = new ArrayList<>();
        for (String text : actions) {
            JsonNode action = Messages.JSON.readTree(text);
            if (action.at("/metaData/configuration") instanceof ObjectNode configuration) {
                configuration.put("delta.managedCommit.commitOwner", NAME);
                text = action.toString();
            }
            named.add(text);
        }
        return named;
    }

    /** The text in UTF-8; null for a file that is not text. */
    private static String textOf(byte[] bytes) {
        try {
            return StandardCharsets.UTF_8.newDecoder().decode(ByteBuffer.wrap(bytes)).toString();
        } catch (CharacterCodingException notText) {
            return null;
        }
    }

    // The loop: a call on each line of the standard input, a reply on each line of the standard output

    record Reply(long id, Messages.Answer answer) {}

    public static void main(String[] arguments) throws IOException {
        Owner owner = new Owner();
        BufferedReader calls = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        PrintStream replies = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        for (String line = calls.readLine(); line != null; line = calls.readLine()) {
            JsonNode call = Messages.JSON.readTree(line);
            Reply reply = new Reply(call.get("id").asLong(), owner.answer(call.get("request")));
            replies.println(Messages.JSON.writeValueAsString(reply));
        }
    }
}
