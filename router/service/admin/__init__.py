"""The admin endpoint: probes, metrics, the JSON API and the console, over HTTP.

guard    who may ask, and how much at a time        api       what can be asked, as a table
server   sockets and HTTP (hypercorn on Trio)       openapi   the same table for programs
history  rates and the last hour                    console/  the same answers for people
"""
