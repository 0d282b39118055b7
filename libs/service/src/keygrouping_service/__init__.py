"""What the services share: settings, Kafka plumbing, progress, health, metrics, shutdown."""
