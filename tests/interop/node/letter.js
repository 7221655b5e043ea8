// amqplib against a router: counts, what is not there, confirms without consumers, direct reply-to.

const assert = require('assert');
const amqp = require('amqplib');

const port = process.argv[2];
const DIRECT = 'amq.rabbitmq.reply-to';

async function main() {
  const connection = await amqp.connect(`amqp://guest:guest@127.0.0.1:${port}/`);
  const channel = await connection.createChannel();
  const {queue} = await channel.assertQueue('', {exclusive: true});
  channel.sendToQueue(queue, Buffer.from('1'));
  console.log((await channel.checkQueue(queue)).messageCount);
  console.log((await channel.purgeQueue(queue)).messageCount);
  channel.sendToQueue(queue, Buffer.from('2'));
  console.log((await channel.deleteQueue(queue)).messageCount);

  const broken = await connection.createChannel();
  broken.on('error', () => {});
  await assert.rejects(broken.bindQueue('nothing', 'logs', 'k'), (error) => {
    console.log(error.code);
    return true;
  });

  const confirming = await connection.createConfirmChannel();
  await confirming.assertQueue('tasks.node', {durable: false, autoDelete: true});
  confirming.sendToQueue('tasks.node', Buffer.from('early'));
  await confirming.waitForConfirms();
  console.log('confirmed');

  const other = await amqp.connect(`amqp://guest:guest@127.0.0.1:${port}/`);
  const serving = await other.createChannel();
  await serving.consume('tasks.calls', (call) => {
    serving.sendToQueue(call.properties.replyTo, Buffer.from('answer'));
  }, {noAck: true});
  const answered = new Promise((resolve) => {
    channel.consume(DIRECT, (message) => resolve(message.content.toString()), {noAck: true});
  });
  channel.sendToQueue('tasks.calls', Buffer.from('call'), {replyTo: DIRECT});
  assert.strictEqual(await answered, 'answer');
  console.log('asked');
  await other.close();
  await connection.close();
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
