ARG GO_IMAGE=golang:1.26
ARG BASE_IMAGE=gcr.io/distroless/static-debian13:nonroot

FROM ${GO_IMAGE} AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
ARG VERSION=dev
RUN CGO_ENABLED=0 go build -trimpath -buildvcs=false -ldflags "-s -w -X main.version=${VERSION}" -o /out/councild ./cmd/councild \
    && mkdir /out/data

FROM ${BASE_IMAGE}
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
