// Package api holds the OpenAPI document of the till's API, as it is served at
// /openapi.yaml, and what is made from it.
package api

import _ "embed"

//go:generate go tool -modfile=../tools/go.mod oapi-codegen -config oapi-codegen.yaml openapi.yaml

// OpenAPI is the document, in YAML.
//
//go:embed openapi.yaml
var OpenAPI []byte
