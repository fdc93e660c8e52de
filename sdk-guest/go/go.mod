module github.com/capstan-dev/capstan/sdk-guest/go

go 1.27.1

toolchain go1.27.3
