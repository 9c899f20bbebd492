"""Three servers behind one set of flags: `tensorflow_model_server`, its Docker image, and the embedded one.

`flags` has TF-Serving's flags as a table, `checks` looks at their values before anything is loaded, `choice` finds the
server, `native`, `docker` and `embedded` each say how theirs is started.
"""
