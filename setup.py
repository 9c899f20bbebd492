"""keras_posenc: position encodings for Keras transformers, and what their attention means."""

from pathlib import Path

from setuptools import find_packages, setup

here = Path(__file__).parent
version = {}
exec((here / "keras_posenc" / "version.py").read_text(), version)

plots = ["matplotlib>=3.8", "tqdm>=4.66"]
extras = {
    "plots": plots,
    # Hugging Face folders and their tokenizers, without torch or transformers.
    "checkpoints": ["safetensors>=0.8", "keras-hub>=0.32", "tensorflow-text~=2.20.1", "sentencepiece>=0.2"],
    "benchmarks": plots,
    # The binaries of training/.
    "training": [
        "absl-py>=1.4",
        "keras-hub>=0.32",
        "sacrebleu>=2.4",
        "safetensors>=0.8",
        "sentencepiece>=0.2",
        "tensorboard~=2.20.0",
        "tensorflow-datasets>=4.9",
        "tensorflow-text~=2.20.1",
        "tf-models-official~=2.20.0",
        *plots,
    ],
    # serving/: export, the embedded model server, client and latency comparison.
    "serving": [
        "absl-py>=1.4",
        "grpcio>=1.70",
        "httptools>=0.6",
        "keras-hub>=0.32",
        "orjson>=3.10",
        "safetensors>=0.8",
        "tensorflow-serving-api~=2.20.0",
        "tensorflow-text~=2.20.1",
        "urllib3>=2",
        "uvicorn>=0.30",
        "uvloop>=0.20; sys_platform != 'win32'",
        *plots,
    ],
    # Runners for training.prepare_corpus.
    "beam": ["apache-beam>=2.77"],
    # Independent implementations that the tests compare with.
    "oracles": [
        "jax>=0.10",
        "keras-hub>=0.32",
        "tf-models-official~=2.20.0",
        "torch>=2.4",
        "transformers>=5.0",
    ],
    # API documentation from the docstrings.
    "docs": ["pdoc>=15"],
    "dev": ["ruff>=0.6", "pytest>=8", "pytest-xdist>=3.5", "scipy>=1.11"],
    # Schemas that serving/deploy is checked against, and clients that the server is tried with.
    "peers": [
        "check-jsonschema>=0.30",
        "kubernetes-validate>=1.33",
        "PyYAML>=6",
        "requests>=2.31",
        "tf-serving>=0.1.6",
    ],
    # Running colab/.
    "notebooks": ["ipykernel>=6.29", "nbclient>=0.10", "nbformat>=5.10"],
}
tested = ("dev", "oracles", "checkpoints", "training", "serving", "beam", "peers", "docs", "notebooks")
extras["test"] = sorted({requirement for name in tested for requirement in extras[name]})

setup(
    name="keras_posenc",
    version=version["__version__"],
    description="Position encodings for Keras 3 transformers: layers, models, analysis of attention, serving.",
    long_description=(here / "README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    license="Apache-2.0",
    packages=find_packages(
        include=[f"{name}{part}" for name in ("keras_posenc", "serving", "training") for part in ("", ".*")]
    ),
    package_data={
        "keras_posenc.analysis.study": ["*.css", "*.js"],
        "serving": ["viewer/*", "deploy/*", "deploy/*/*", "peering/requirements.txt"],
    },
    python_requires=">=3.11",
    install_requires=["tensorflow~=2.20.0", "keras>=3.15,<4", "numpy>=1.26"],
    extras_require=extras,
    license_files=["LICENSE"],
    classifiers=[
        "Operating System :: POSIX :: Linux",
        "Programming Language :: Python :: 3.11",
        "Topic :: Scientific/Engineering :: Artificial Intelligence",
    ],
)
