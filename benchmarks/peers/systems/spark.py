"""PySpark Structured Streaming from Kafka to Kafka on two cores, all that is there in one run."""

import os
from datetime import datetime

from common import BROKERS, FOLDER, SOURCE, TARGET, WORK, first
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

# >route >count
spark = (
    SparkSession.builder.master("local[2]")
    .config("spark.jars", os.environ["PEER_SPARK_JARS"])
    .config("spark.sql.shuffle.partitions", "4")
    .config("spark.ui.enabled", "false")
    .config("spark.log.level", "ERROR")
    .config("spark.sql.session.timeZone", "UTC")
    .getOrCreate()
)
kafka = {"kafka.bootstrap.servers": BROKERS}
source = spark.readStream.format("kafka").options(**kafka, subscribe=SOURCE, startingOffsets="earliest").load()
# <route <count
if WORK == "route":
    # >route
    rows, mode = source.select("key", "value"), "append"
    # <route
else:
    # >count
    value = F.from_json(F.col("value").cast("string"), "a LONG, b LONG")
    sums = (
        source.withWatermark("timestamp", "200 seconds")
        .groupBy(F.window("timestamp", "10 seconds"), "key")
        .agg(F.count("*").alias("n"), F.sum(value.a).alias("a"), F.sum(value.b).alias("b"))
    )
    row = F.array(F.unix_millis("window.start"), "n", "a", "b")
    rows, mode = sums.select("key", F.to_json(row).alias("value")), "update"
    # <count
# >route >count
query = (
    rows.writeStream.format("kafka")
    .options(**kafka, topic=TARGET, checkpointLocation=f"{FOLDER}/checkpoint")
    .outputMode(mode)
    .trigger(availableNow=True)
    .start()
)
query.awaitTermination()
# <route <count
first(datetime.fromisoformat(query.recentProgress[0]["timestamp"].replace("Z", "+00:00")).timestamp())
spark.stop()
