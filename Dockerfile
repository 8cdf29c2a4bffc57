# docker build -t llmserve-lab . && docker run --rm -p 8888:8888 llmserve-lab
# For an NVIDIA GPU: add --build-arg TORCH_FROM= to build and --gpus all to run.
FROM python:3.12-slim
RUN useradd --create-home learner && install -d -o learner /home/learner/llmserve-lab
WORKDIR /home/learner/llmserve-lab
ARG TORCH_FROM="--index-url https://download.pytorch.org/whl/cpu"
RUN pip install --no-cache-dir torch==2.13.0 ${TORCH_FROM}
COPY --chown=learner . .
RUN pip install --no-cache-dir -e '.[lab]'
USER learner
ENV JUPYTER_CONFIG_PATH=/home/learner/llmserve-lab
EXPOSE 8888
CMD ["jupyter", "lab", "--ip=0.0.0.0", "--no-browser", "--LabApp.default_url=/lab/tree/notebooks/00_start_here.ipynb"]
