// Opens a connection, and prints what the peer says of other places in its open.
"use strict";
const rhea = require("rhea");

const connection = rhea.connect({ host: "127.0.0.1", port: Number(process.argv[2]), reconnect: false });
rhea.on("connection_open", (context) => {
  const named = context.connection.properties["failover-server-list"];
  console.log(JSON.stringify(named));
  connection.close();
});
