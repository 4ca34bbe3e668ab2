// Package api embeds the HTTP contract.
package api

import _ "embed"

// OpenAPI is openapi.yaml, the contract in OpenAPI 3.1.
//
//go:embed openapi.yaml
var OpenAPI []byte
