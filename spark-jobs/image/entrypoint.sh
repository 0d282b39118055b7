#!/bin/bash
# What a container of this image is:
#   client     the job with a driver of its own, in a pod that POD_NAME, POD_IP and POD_PREFIX describe, or without them
#              on this machine alone
#   driver     spark-submit in client mode, as operators and cluster mode ask for
#   executor   one executor, as Spark on Kubernetes asks for
#   else       a command, as it is
set -eu

# numba reads its cache only where it may write, and /app may be read-only.
if [ -n "${NUMBA_CACHE_DIR:-}" ]; then
    mkdir -p "$NUMBA_CACHE_DIR" && cp -r /app/kernels/. "$NUMBA_CACHE_DIR" ||
        echo "no kernels copied to $NUMBA_CACHE_DIR: they are compiled again" >&2
fi

case "${1:-}" in
client)
    shift
    if [ -n "${POD_NAME:-}" ]; then
        # Executors of a former driver may still be there: names must differ from driver to driver.
        export PYSPARK_SUBMIT_ARGS="--conf spark.kubernetes.driver.pod.name=$POD_NAME \
--conf spark.driver.bindAddress=$POD_IP \
--conf spark.kubernetes.executor.podNamePrefix=$POD_PREFIX-${POD_NAME##*-} pyspark-shell"
    fi
    exec keygrouping-spark "$@"
    ;;
driver)
    shift
    exec "$SPARK_HOME/bin/spark-submit" \
        --conf "spark.driver.bindAddress=$SPARK_DRIVER_BIND_ADDRESS" \
        --conf "spark.executorEnv.SPARK_DRIVER_POD_IP=$SPARK_DRIVER_BIND_ADDRESS" \
        --deploy-mode client "$@"
    ;;
executor)
    options=()
    for name in $(compgen -A variable SPARK_JAVA_OPT_ | sort -t_ -k4 -n); do
        options+=("${!name}")
    done
    # Spark hands over spark.authenticate.secret.file, but reads the file only if it knows that it is on Kubernetes, and
    # that only the driver could tell, which answers nobody without the secret.
    exec "$JAVA_HOME/bin/java" "${options[@]}" -Dspark.master=k8s://executor "-Xms$SPARK_EXECUTOR_MEMORY" "-Xmx$SPARK_EXECUTOR_MEMORY" \
        -cp "${SPARK_CONF_DIR:-$SPARK_HOME/conf}:${SPARK_CLASSPATH:-}:$SPARK_HOME/jars/*:$PWD" \
        org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend \
        --driver-url "$SPARK_DRIVER_URL" \
        --executor-id "$SPARK_EXECUTOR_ID" \
        --cores "$SPARK_EXECUTOR_CORES" \
        --app-id "$SPARK_APPLICATION_ID" \
        --hostname "$SPARK_EXECUTOR_POD_IP" \
        --resourceProfileId "$SPARK_RESOURCE_PROFILE_ID" \
        --podName "$SPARK_EXECUTOR_POD_NAME"
    ;;
*)
    exec "$@"
    ;;
esac
