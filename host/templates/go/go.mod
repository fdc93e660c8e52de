module {{group}}/{{name}}

go 1.27.1

tool (
	github.com/capstan-dev/capstan/sdk-guest/go/cmd/component
	github.com/capstan-dev/capstan/sdk-guest/go/cmd/types
)

require github.com/capstan-dev/capstan/sdk-guest/go v{{version}}
{{sdk}}
