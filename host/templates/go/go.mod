module {{group}}/{{name}}

go 1.27.1

tool github.com/capstan-dev/capstan/sdk-guest/go/cmd/component

require github.com/capstan-dev/capstan/sdk-guest/go v{{version}}
{{sdk}}
