"""What apps and services share on top of aiokafka."""
