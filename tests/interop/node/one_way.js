// An amqplib client for test_basic_exchange.py: publishes `count` messages with confirms to a queue,
// or consumes them from it and acknowledges each.
// usage: one_way.js PORT publish|consume QUEUE COUNT        prints the bodies consumed
const amqp = require('amqplib');

const [port, what, queue, count] = [
    Number(process.argv[2]), process.argv[3], process.argv[4], Number(process.argv[5]),
];

async function publish(connection) {
    const channel = await connection.createConfirmChannel();
    await channel.assertQueue(queue, {durable: true});
    for (let n = 0; n < count; n += 1) {
        channel.sendToQueue(queue, Buffer.from(`body ${n};`), {contentType: 'text/plain'});
    }
    await channel.waitForConfirms();
    await channel.close();
}

async function consume(connection) {
    const channel = await connection.createChannel();
    await channel.assertQueue(queue, {durable: true});
    await new Promise((resolve, reject) => {
        let seen = 0;
        channel.consume(queue, (message) => {
            process.stdout.write(message.content);
            channel.ack(message);
            seen += 1;
            if (seen === count) resolve();
        }).catch(reject);
    });
    await channel.close();
}

async function main() {
    const connection = await amqp.connect(`amqp://guest:guest@127.0.0.1:${port}`);
    await (what === 'publish' ? publish(connection) : consume(connection));
    await connection.close();
}

main().catch((error) => {
    console.error(error);
    process.exit(1);
});
