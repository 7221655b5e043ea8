# Starts RabbitMQ nodes on loopback, without systemd and beside any that the machine runs itself.

server=/usr/lib/rabbitmq/bin/rabbitmq-server

# start_node NAME PORT: a node of its own ports and folders, with the AMQP 1.0 plugin.
start_node() {
    local name=$1 port=$2 home=$work/$1
    mkdir -p "$home"
    echo '[rabbitmq_amqp1_0].' >"$home/plugins"
    printf '%s\n' "listeners.tcp.default = 127.0.0.1:$port" 'loopback_users = none' \
        'disk_free_limit.absolute = 50MB' >"$home/rabbitmq.conf"
    env HOME="$home" \
        RABBITMQ_NODENAME="$name-$$@localhost" \
        RABBITMQ_NODE_IP_ADDRESS=127.0.0.1 \
        RABBITMQ_NODE_PORT="$port" \
        RABBITMQ_DIST_PORT="$(free_port)" \
        RABBITMQ_MNESIA_BASE="$home/mnesia" \
        RABBITMQ_LOG_BASE="$home/log" \
        RABBITMQ_ENABLED_PLUGINS_FILE="$home/plugins" \
        RABBITMQ_CONFIG_FILE="$home/rabbitmq" \
        RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS='-kernel inet_dist_use_interface {127,0,0,1} +S 1:1' \
        ERL_EPMD_ADDRESS=127.0.0.1 \
        ERL_EPMD_PORT="$mapper_port" \
        setsid "$server" >"$home/console" 2>&1 &
    nodes+=("$!")
}

# wait_node NAME PORT: waits until a node accepts connections.
wait_node() {
    for _ in $(seq 600); do
        (exec 3<>"/dev/tcp/127.0.0.1/$2") 2>/dev/null && return
        sleep 0.2
    done
    echo "$1 did not start:" >&2
    tail -n 5 "$work/$1/console" >&2
    return 1
}

stop_nodes() {
    local node
    for node in "${nodes[@]}"; do kill -TERM -- "-$node" 2>/dev/null || true; done
    for node in "${nodes[@]}"; do wait "$node" || true; done
    ERL_EPMD_PORT=$mapper_port epmd -port "$mapper_port" -kill >/dev/null || true
}

nodes=()
mapper_port=$(free_port)
