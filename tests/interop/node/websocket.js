// rhea over WebSocket for test_websocket.py, in a browser's page and in Node.
// usage in Node: websocket.js URL ADDRESS COUNT CA        prints one line of JSON
function exchange(rhea, Socket, url, address, count, options) {
    return new Promise((resolve, reject) => {
        const began = Date.now();
        const container = rhea.create_container();
        const seen = new Set();
        const report = {received: 0, doubled: 0, accepted: 0, other: 0};
        let sent = 0;
        const dial = container.websocket_connect(Socket);
        const connection = container.connect({
            connection_details: dial(url, ['amqp'], options), reconnect: false,
            username: 'app', password: 'open sesame',
        });
        connection.open_receiver({source: address, credit_window: 500});
        connection.open_sender({target: address});
        const advance = () => {
            if (report.accepted + report.other === count && seen.size === count) {
                report.seconds = (Date.now() - began) / 1000;
                connection.close();
            }
        };
        container.on('sendable', (context) => {
            for (; sent < count && context.sender.sendable(); sent += 1) {
                context.sender.send({body: {text: `m${sent}`}, application_properties: {n: sent}, durable: true});
            }
        });
        container.on('message', (context) => {
            const number = context.message.application_properties.n;
            report.received += 1;
            if (seen.has(number)) report.doubled += 1;
            seen.add(number);
            advance();
        });
        container.on('accepted', () => { report.accepted += 1; advance(); });
        for (const outcome of ['released', 'rejected', 'modified']) {
            container.on(outcome, () => { report.other += 1; advance(); });
        }
        container.on('connection_close', () => resolve(report));
        for (const trouble of ['connection_error', 'disconnected', 'error']) {
            container.on(trouble, (context) => reject(new Error(`${trouble}: ${context.error || context}`)));
        }
    });
}

if (typeof window === 'undefined') {
    const [url, address, count, ca] = process.argv.slice(2);
    const options = {ca: require('fs').readFileSync(ca)};
    exchange(require('rhea'), require('ws'), url, address, Number(count), options).then(
        (report) => { console.log(JSON.stringify(report)); process.exit(0); },
        (error) => { console.error(error); process.exit(1); },
    );
    setTimeout(() => { console.error('too slow'); process.exit(1); }, 120000).unref();
}
