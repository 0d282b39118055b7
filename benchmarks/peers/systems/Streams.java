import com.fasterxml.jackson.databind.*;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.file.*;
import java.time.Duration;
import java.util.*;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.common.serialization.*;
import org.apache.kafka.streams.*;
import org.apache.kafka.streams.kstream.*;

/** Kafka Streams: repartitioning by key, and count and two sums per key and window behind it. */
public class Streams {
    static final Map<String, String> ENV = System.getenv();
    static final ObjectMapper JSON = new ObjectMapper();
    static volatile boolean seen = false;

    static synchronized void first() {
        if (seen) return;
        seen = true;
        try {
            Files.writeString(Path.of(ENV.get("PEER_FOLDER"), "first"), "" + System.currentTimeMillis() / 1000.0);
        } catch (IOException e) {
            throw new RuntimeException(e);
        }
    }

    public static void main(String[] arguments) {
        String source = ENV.get("PEER_SOURCE"), target = ENV.get("PEER_TARGET");
        boolean eos = ENV.get("PEER_MODE").equals("eos");
        // >route >count
        Properties settings = new Properties();
        settings.put(StreamsConfig.APPLICATION_ID_CONFIG, ENV.get("PEER_APPLICATION"));
        settings.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, ENV.get("PEER_BROKERS"));
        settings.put(StreamsConfig.STATE_DIR_CONFIG, ENV.get("PEER_FOLDER"));
        settings.put(StreamsConfig.NUM_STREAM_THREADS_CONFIG, Integer.parseInt(ENV.get("PEER_THREADS")));
        settings.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, eos ? StreamsConfig.EXACTLY_ONCE_V2 : StreamsConfig.AT_LEAST_ONCE);
        // 30 s by default at least once; exactly once keeps its 100 ms.
        if (!eos) settings.put(StreamsConfig.COMMIT_INTERVAL_MS_CONFIG, 1000);
        settings.put(ConsumerConfig.AUTO_OFFSET_RESET_CONFIG, "earliest");
        // >route >count
        StreamsBuilder builder = new StreamsBuilder();
        KStream<byte[], byte[]> events = builder.stream(source, Consumed.with(Serdes.ByteArray(), Serdes.ByteArray()));
        // <route <count
        events = events.peek((key, value) -> { if (!seen) first(); });
        if (ENV.get("PEER_WORK").equals("route")) {
            // >route
            events.selectKey((key, value) -> key).to(target, Produced.with(Serdes.ByteArray(), Serdes.ByteArray()));
            // <route
        } else {
            // >count
            events.groupBy((key, value) -> new String(key), Grouped.with(Serdes.String(), Serdes.ByteArray()))
                .windowedBy(TimeWindows.ofSizeAndGrace(Duration.ofSeconds(10), Duration.ofSeconds(2000)))
                .aggregate(() -> new byte[24], Streams::add, Materialized.with(Serdes.String(), Serdes.ByteArray()))
                .toStream()
                .map((window, sums) -> KeyValue.pair(window.key(), text(window.window().start(), sums)))
                .to(target, Produced.with(Serdes.String(), Serdes.String()));
            // <count
        }
        // >route >count
        KafkaStreams streams = new KafkaStreams(builder.build(), settings);
        Runtime.getRuntime().addShutdownHook(new Thread(() -> streams.close(Duration.ofSeconds(3))));
        streams.start();
        // <route <count
    }

    // >count
    static byte[] add(String key, byte[] value, byte[] sums) {
        try {
            JsonNode event = JSON.readTree(value);
            ByteBuffer old = ByteBuffer.wrap(sums);
            return ByteBuffer.allocate(24)
                .putLong(old.getLong() + 1)
                .putLong(old.getLong() + event.get("a").asLong())
                .putLong(old.getLong() + event.get("b").asLong())
                .array();
        } catch (IOException e) {
            throw new RuntimeException(e);
        }
    }

    static String text(long start, byte[] sums) {
        ByteBuffer buffer = ByteBuffer.wrap(sums);
        return "[" + start + "," + buffer.getLong() + "," + buffer.getLong() + "," + buffer.getLong() + "]";
    }
    // <count
}
