import java.io.FileOutputStream;
import java.io.IOException;
import java.io.OutputStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import java.util.Properties;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * One member of a share group, which writes a line each second: see shared_keys.py.
 *
 * <p>It has as many consumers as lanes, and each gives what it polls to all lanes. The broker gives a consumer one
 * partition if there are more consumers than partitions. So a consumer that handles its records itself shares nothing:
 * a hot partition has its part of all consumers, and so of all lanes, and the others idle. With few consumers hot
 * partitions are missing in most members.
 */
public class ShareGroup {
    private final long nanos;
    private final ExecutorService lanes;
    private final OutputStream file;
    private final List<Long> waits = new ArrayList<>();
    private double seconds;
    private long told;
    private volatile boolean ends;

    private ShareGroup(double call, int lanes, OutputStream file) {
        this.nanos = (long) (call * 1e9);
        this.lanes = Executors.newFixedThreadPool(lanes);
        this.file = file;
    }

    public static void main(String[] given) throws IOException {
        int lanes = Integer.parseInt(given[3]);
        var member = new ShareGroup(Double.parseDouble(given[2]), lanes, new FileOutputStream(given[4]));
        var readers = new ArrayList<Thread>();
        for (int number = 0; number < lanes; number++) {
            var consumer = open(given[0], given[1], lanes);
            readers.add(new Thread(() -> member.read(consumer)));
        }
        Runtime.getRuntime().addShutdownHook(new Thread(() -> member.end(readers)));
        readers.forEach(Thread::start);
    }

    private static KafkaShareConsumer<byte[], byte[]> open(String servers, String topic, int records) {
        var settings = new Properties();
        settings.put("bootstrap.servers", servers);
        settings.put("group.id", topic);
        // At least a batch of the writer, which is less work for the broker than `record_limit`. Calls of more than a
        // second need fewer: the lock of each record ends 30 s after its poll.
        settings.put("max.poll.records", records);
        var consumer = new KafkaShareConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer());
        consumer.subscribe(List.of(topic));
        return consumer;
    }

    /** Each poll acknowledges what the one before it has brought. */
    private void read(KafkaShareConsumer<byte[], byte[]> consumer) {
        try (consumer) {
            while (!ends) {
                var calls = new ArrayList<Callable<Void>>();
                for (var each : consumer.poll(Duration.ofSeconds(1))) {
                    calls.add(() -> handle(each));
                }
                lanes.invokeAll(calls);
            }
            consumer.commitSync();
        } catch (InterruptedException error) {
            throw new IllegalStateException(error);
        }
    }

    private Void handle(ConsumerRecord<byte[], byte[]> event) throws InterruptedException, IOException {
        long began = System.nanoTime();
        Thread.sleep(nanos / 1_000_000, (int) (nanos % 1_000_000));
        double took = (System.nanoTime() - began) / 1e9;
        long now = System.currentTimeMillis();
        synchronized (this) {
            seconds += took;
            waits.add(now - event.timestamp());
            if (now / 1000 > told) {
                tell(now);
            }
        }
        return null;
    }

    /** In one piece, so that nobody reads a part of a line. */
    private synchronized void tell(long now) throws IOException {
        String line = String.format(Locale.ROOT, "[%.3f, %d, %.6f, %s]%n", now / 1e3, waits.size(), seconds, waits);
        file.write(line.getBytes(StandardCharsets.UTF_8));
        told = now / 1000;
        seconds = 0;
        waits.clear();
    }

    /** What was polled is handled and acknowledged, and what was not told yet is told. */
    private void end(List<Thread> readers) {
        ends = true;
        try {
            for (Thread reader : readers) {
                reader.join();
            }
            tell(System.currentTimeMillis());
        } catch (InterruptedException | IOException error) {
            throw new IllegalStateException(error);
        }
    }
}
