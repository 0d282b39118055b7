import io.confluent.parallelconsumer.ParallelConsumerOptions;
import io.confluent.parallelconsumer.ParallelStreamProcessor;
import java.util.List;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.serialization.StringDeserializer;

/** Handles a topic's events in order per key, and prints how many it handles in a second: see handlers.py. */
public class ParallelConsumer {
    public static void main(String[] given) throws Exception {
        long events = Long.parseLong(given[2]);
        boolean sleeps = given[3].equals("sleep");
        long nanos = (long) (Double.parseDouble(given[4]) * 1e9);
        Properties settings = new Properties();
        settings.put("bootstrap.servers", given[0]);
        settings.put("group.id", given[1] + "-java");
        settings.put("auto.offset.reset", "earliest");
        settings.put("enable.auto.commit", "false");
        var consumer = new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer());
        var options = ParallelConsumerOptions.<String, String>builder()
            .ordering(ParallelConsumerOptions.ProcessingOrder.KEY)
            .maxConcurrency(Integer.parseInt(given[5]))
            .consumer(consumer)
            .build();
        var processor = ParallelStreamProcessor.<String, String>createEosStreamProcessor(options);
        processor.subscribe(List.of(given[1]));
        var began = new AtomicLong();
        var left = new AtomicLong(events);
        var all = new CountDownLatch(1);
        processor.poll(context -> {
            began.compareAndSet(0, System.nanoTime());
            if (sleeps) {
                try {
                    Thread.sleep(nanos / 1_000_000, (int) (nanos % 1_000_000));
                } catch (InterruptedException error) {
                    throw new IllegalStateException(error);
                }
            } else {
                long end = System.nanoTime() + nanos;
                while (System.nanoTime() < end) {
                    Thread.onSpinWait();
                }
            }
            if (left.decrementAndGet() == 0) {
                all.countDown();
            }
        });
        all.await();
        System.out.println(events * 1e9 / (System.nanoTime() - began.get()));
        System.exit(0);
    }
}
