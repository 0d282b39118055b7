"""The app on Kafka: who owns which partition, reading them, and committing what has ended."""
