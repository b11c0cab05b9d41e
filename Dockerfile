# The images, for who has a container engine; `make image` builds the same ones without. A test holds the two to each
# other, down to the flags of the compiler.
#
#   docker build --build-arg VERSION=$(git describe --tags --always) --build-arg REVISION=$(git rev-parse HEAD) .
#   docker build --target walletsim …      # the simulated wallet, which has no place in the image that is deployed

# The one thing that comes from elsewhere. The compiler that go.mod asks for is in it or is fetched by it.
FROM --platform=$BUILDPLATFORM golang:1.26.8 AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
ARG VERSION=unknown REVISION=unknown TARGETARCH
ENV CGO_ENABLED=0 GOOS=linux GOFLAGS= GOWORK=off GOEXPERIMENT= GOAMD64=v1 GOARM64=v8.0 GOFIPS140=off
RUN GOARCH=${TARGETARCH:-$(go env GOARCH)} go build -trimpath -buildvcs=false \
      -ldflags "-s -w -X main.version=$VERSION -X main.revision=$REVISION" -o /out/ ./cmd/safeledger ./cmd/walletsim \
 && chmod 0555 /out/*

# Nothing else is in the images: no shell, no package that ages, nothing to write to. CA roots and time zones are in
# the program; a system's, where one is mounted, come first.
FROM scratch AS walletsim
ARG VERSION=unknown REVISION=unknown
LABEL org.opencontainers.image.title="The simulated wallet of SafeLedger, for trying and testing" \
      org.opencontainers.image.version=$VERSION \
      org.opencontainers.image.revision=$REVISION
COPY --from=build /out/walletsim /walletsim
USER 65532:65532
WORKDIR /
EXPOSE 8090/tcp
ENTRYPOINT ["/walletsim"]

# The last one is what `docker build` builds.
FROM scratch AS safeledger
ARG VERSION=unknown REVISION=unknown
LABEL org.opencontainers.image.title="SafeLedger decides payments between tills and a wallet" \
      org.opencontainers.image.version=$VERSION \
      org.opencontainers.image.revision=$REVISION
COPY --from=build /out/safeledger /safeledger
USER 65532:65532
WORKDIR /
EXPOSE 8080/tcp 9090/tcp
ENTRYPOINT ["/safeledger"]
CMD ["serve"]
