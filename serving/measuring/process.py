"""`python -m serving.measuring.process`: `serving.model_server` that ends when whoever started it is gone."""

from absl import app, flags

from keras_posenc.utils.following import follow_parent
from serving import model_server

if __name__ == "__main__":
    follow_parent()
    model_server.define(flags.FLAGS)
    app.run(model_server.main)
