// A rhea client for test_rhea.py: sends `count` messages to an address and answers each in one way.
// usage: exchange.js PORT ADDRESS COUNT ANSWER        prints one line of JSON
const rhea = require('rhea');

const [port, address, count, answer] = [
    Number(process.argv[2]), process.argv[3], Number(process.argv[4]), process.argv[5],
];
const container = rhea.create_container();
const report = {received: [], accepted: 0, rejected: 0, released: 0, modified: 0, error: null};
let sent = 0;
let done = 0;

const connection = container.connect({host: '127.0.0.1', port, reconnect: false});
connection.open_receiver({source: address, credit_window: 20, autoaccept: false, autosettle: true});
connection.open_sender({target: address, treat_modified_as_released: false});

container.on('sendable', (context) => {
    while (sent < count && context.sender.sendable()) {
        context.sender.send({
            message_id: sent, body: {text: `m${sent}`}, application_properties: {n: sent},
        });
        sent += 1;
    }
});

container.on('message', (context) => {
    report.received.push(context.message.application_properties.n);
    switch (answer) {
    case 'accepted': context.delivery.accept(); break;
    case 'rejected': context.delivery.reject({condition: 'test:no', description: 'not wanted'}); break;
    case 'released': context.delivery.release(); break;
    case 'modified':
        context.delivery.modified({delivery_failed: true, undeliverable_here: true});
        break;
    }
});

function one_done(outcome) {
    report[outcome] += 1;
    done += 1;
    if (done === count) connection.close();
}

container.on('accepted', () => one_done('accepted'));
container.on('rejected', (context) => {
    report.error = context.delivery.remote_state.error.condition;
    one_done('rejected');
});
container.on('released', () => one_done('released'));
container.on('modified', () => one_done('modified'));
container.on('disconnected', (context) => {
    if (context.error) report.error = String(context.error);
});
container.on('connection_close', () => console.log(JSON.stringify(report)));
setTimeout(() => { console.error(JSON.stringify(report)); process.exit(1); }, 30000).unref();
