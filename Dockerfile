ARG GO_IMAGE=golang:1.26.8
ARG BASE_IMAGE=gcr.io/distroless/static-debian13:nonroot

# The toolchain runs on the machine that builds, and compiles for the machine that runs.
FROM --platform=${BUILDPLATFORM} ${GO_IMAGE} AS build
ARG TARGETOS TARGETARCH
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
ARG VERSION=dev
RUN CGO_ENABLED=0 GOOS=${TARGETOS} GOARCH=${TARGETARCH} go build -trimpath -buildvcs=false -ldflags "-s -w -X main.version=${VERSION}" -o /out/councild ./cmd/councild \
    && mkdir /out/data

FROM ${BASE_IMAGE}
ARG VERSION=dev REVISION=""
LABEL org.opencontainers.image.title="councild" \
      org.opencontainers.image.description="An LLM council behind one HTTP call" \
      org.opencontainers.image.source="https://github.com/councild/councild" \
      org.opencontainers.image.licenses="MIT" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      io.modelcontextprotocol.server.name="io.github.councild/councild"
COPY --from=build /out/councild /councild
COPY --from=build --chown=65532:65532 /out/data /data
ENV LLM_COUNCIL_ADDR=0.0.0.0:8080 \
    LLM_COUNCIL_BIAS_STORE=/data/bias_metrics.jsonl
USER 65532:65532
VOLUME /data
EXPOSE 8080
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=30s --timeout=3s --start-period=5s CMD ["/councild", "healthcheck"]
ENTRYPOINT ["/councild"]
CMD ["serve"]
