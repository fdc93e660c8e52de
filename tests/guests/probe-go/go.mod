module probe-go

go 1.27.1

toolchain go1.27.3

require github.com/capstan-dev/capstan/sdk-guest/go v0.1.0

replace github.com/capstan-dev/capstan/sdk-guest/go => ../../../sdk-guest/go

tool github.com/capstan-dev/capstan/sdk-guest/go/cmd/component
