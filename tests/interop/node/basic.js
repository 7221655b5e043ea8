// An amqplib client for test_basic_tools.py: publishes `count` messages with confirms to a queue
// and consumes them on the same connection, answering each in one way.
// usage: basic.js PORT QUEUE COUNT ANSWER        prints one line of JSON
const amqp = require('amqplib');

const [port, queue, count, answer] = [
    Number(process.argv[2]), process.argv[3], Number(process.argv[4]), process.argv[5],
];
const report = {received: [], confirmed: 0, refused: 0, headers: null};

async function main() {
    const connection = await amqp.connect(`amqp://guest:guest@127.0.0.1:${port}/?heartbeat=10`);
    const consuming = await connection.createChannel();
    await consuming.assertQueue(queue, {durable: true});
    await consuming.prefetch(20);
    await consuming.consume(queue, (message) => {
        report.received.push(Number(message.content.toString()));
        report.headers = message.properties.headers;
        if (answer === 'ack') {
            consuming.ack(message);
        } else {
            consuming.reject(message, false);
        }
    });
    const publishing = await connection.createConfirmChannel();
    const decided = [];
    for (let n = 0; n < count; n += 1) {
        decided.push(new Promise((resolve) => {
            publishing.sendToQueue(queue, Buffer.from(String(n)), {
                persistent: true, headers: {n, half: 0.5, text: 'grüße', list: [1, 'a'], yes: true},
            }, (error) => {
                report[error ? 'refused' : 'confirmed'] += 1;
                resolve();
            });
        }));
    }
    await Promise.all(decided);
    await publishing.close();
    await consuming.close();
    await connection.close();
    console.log(JSON.stringify(report));
}

main().catch((error) => {
    console.error(error);
    process.exit(1);
});
