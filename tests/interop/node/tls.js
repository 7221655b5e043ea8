// Clients and a server over TLS for test_tls.py.
// usage: tls.js rhea|amqplib PORT CA ADDRESS IDENTITY|-     one message there and back
//        tls.js serve CA PORT=CERTIFICATE...                listens; a PORT with + wants client certificates
const fs = require('fs');

function options(ca, identity) {
    const pem = identity === '-' ? undefined : fs.readFileSync(identity);
    return {ca: [fs.readFileSync(ca)], cert: pem, key: pem, servername: 'localhost'};
}

function rhea(port, ca, address, identity) {
    const container = require('rhea').create_container();
    const connection = container.connect({
        host: 'localhost', port: Number(port), transport: 'tls', reconnect: false,
        rejectUnauthorized: true, enable_sasl_external: identity !== '-', ...options(ca, identity),
    });
    connection.open_receiver(address);
    connection.open_sender(address);
    container.once('sendable', (context) => context.sender.send({body: 'over tls'}));
    container.once('message', (context) => {
        console.log(JSON.stringify({body: context.message.body}));
        connection.close();
    });
    for (const trouble of ['connection_error', 'disconnected', 'error']) {
        container.on(trouble, (context) => {
            console.error(trouble, context.error || context);
            process.exit(1);
        });
    }
}

async function amqplib(port, ca, address, identity) {
    const amqp = require('amqplib');
    const more = identity === '-' ? {} : {credentials: amqp.credentials.external()};
    const connection = await amqp.connect(
        {protocol: 'amqps', hostname: 'localhost', port: Number(port)},
        {...options(ca, identity), ...more},
    );
    const channel = await connection.createChannel();
    await channel.assertQueue(address);
    await channel.consume(address, async (message) => {
        channel.ack(message);
        console.log(JSON.stringify({body: message.content.toString()}));
        await connection.close();
    });
    channel.sendToQueue(address, Buffer.from('over tls'));
}

function serve(ca, ...doors) {
    const container = require('rhea').create_container({id: 'peer'});
    container.sasl_server_mechanisms.enable_anonymous();
    container.on('connection_open', (context) => console.log('opened', context.connection.container_id));
    for (const trouble of ['connection_error', 'disconnected', 'error']) container.on(trouble, () => {});
    let left = doors.length;
    for (const door of doors) {
        const [port, certificate] = door.split('=');
        const pem = fs.readFileSync(certificate);
        const server = container.listen({
            host: '127.0.0.1', port: parseInt(port, 10), transport: 'tls', cert: pem, key: pem,
            ca: [fs.readFileSync(ca)], requestCert: port.endsWith('+'), rejectUnauthorized: true,
        });
        server.on('listening', () => {
            left -= 1;
            if (!left) console.log('listening');
        });
    }
}

const [what, ...rest] = process.argv.slice(2);
Promise.resolve({rhea, amqplib, serve}[what](...rest)).catch((error) => {
    console.error(error);
    process.exit(1);
});
if (what !== 'serve') setTimeout(() => { console.error('no answer'); process.exit(1); }, 40000).unref();
