"""The admin endpoint: probes, metrics, the JSON API and the console, over HTTP.

guard    authorization and request limits           api       the handlers of the operations
server   sockets and HTTP (hypercorn on Trio)       openapi   the operations' OpenAPI document
history  rates and the last hour                    console/  the web console
"""
