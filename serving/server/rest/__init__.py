"""TF-Serving's REST API on uvicorn.

routes      what a method and a path ask for
parsing     JSON text to Python values, with TF-Serving's liberties (NaN) and messages
decode      the body of a predict request to arrays
examples    the body of a classify or regress request to `tf.train.Example`
encode      arrays to JSON, in pieces
api         one request in a worker thread, from body to response
static      the attention viewer
connection  HTTP connections that cannot be held for ever
asgi        the application
app         starts and stops it
"""
