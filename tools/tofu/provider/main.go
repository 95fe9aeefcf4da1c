// SPDX-License-Identifier: Apache-2.0

// Command provider takes the place of the AWS provider of OpenTofu: it has the
// schema of the resources that infra/terraform uses (schema.json), and creates
// nothing. An attribute that AWS would set is unknown until it is applied, and then
// says where it comes from, such as "aws_sqs_queue.orders.arn".
package main

import (
	"context"
	_ "embed"
	"encoding/json"
	"log"
	"maps"
	"slices"

	"github.com/hashicorp/terraform-plugin-go/tfprotov5"
	"github.com/hashicorp/terraform-plugin-go/tfprotov5/tf5server"
	"github.com/hashicorp/terraform-plugin-go/tftypes"
)

func main() {
	p, err := newProvider()
	if err != nil {
		log.Fatal(err)
	}
	if err := tf5server.Serve("registry.opentofu.org/hashicorp/aws", func() tfprotov5.ProviderServer { return p }); err != nil {
		log.Fatal(err)
	}
}

//go:embed schema.json
var schemaFile []byte

// provider implements the calls that OpenTofu makes for new resources. The
// embedded interface is nil: any other call panics.
type provider struct {
	tfprotov5.ProviderServer
	resources, data map[string]*tfprotov5.Schema
}

func newProvider() (*provider, error) {
	var file struct {
		Resources map[string]schema `json:"resource_schemas"`
		Data      map[string]schema `json:"data_source_schemas"`
	}
	if err := json.Unmarshal(schemaFile, &file); err != nil {
		return nil, err
	}
	all := func(in map[string]schema) map[string]*tfprotov5.Schema {
		out := map[string]*tfprotov5.Schema{}
		for name, s := range in {
			out[name] = &tfprotov5.Schema{Block: s.Block.schema()}
		}
		return out
	}
	return &provider{resources: all(file.Resources), data: all(file.Data)}, nil
}

// schema is a schema in the form that `tofu providers schema -json` prints.
type schema struct{ Block block }

type block struct {
	Attributes map[string]struct {
		Type                         tftype
		Required, Optional, Computed bool
	}
	Blocks map[string]struct {
		Nesting string `json:"nesting_mode"`
		Min     int64  `json:"min_items"`
		Max     int64  `json:"max_items"`
		Block   block
	} `json:"block_types"`
}

func (b block) schema() *tfprotov5.SchemaBlock {
	out := &tfprotov5.SchemaBlock{}
	for _, name := range slices.Sorted(maps.Keys(b.Attributes)) {
		a := b.Attributes[name]
		out.Attributes = append(out.Attributes, &tfprotov5.SchemaAttribute{
			Name: name, Type: a.Type.Type, Required: a.Required, Optional: a.Optional, Computed: a.Computed,
		})
	}
	nesting := map[string]tfprotov5.SchemaNestedBlockNestingMode{
		"single": tfprotov5.SchemaNestedBlockNestingModeSingle,
		"list":   tfprotov5.SchemaNestedBlockNestingModeList,
		"set":    tfprotov5.SchemaNestedBlockNestingModeSet,
	}
	for _, name := range slices.Sorted(maps.Keys(b.Blocks)) {
		n := b.Blocks[name]
		out.BlockTypes = append(out.BlockTypes, &tfprotov5.SchemaNestedBlock{
			TypeName: name, Nesting: nesting[n.Nesting], MinItems: n.Min, MaxItems: n.Max, Block: n.Block.schema(),
		})
	}
	return out
}

// tftype is a type as in JSON: "string", or ["map", "string"].
type tftype struct{ tftypes.Type }

func (t *tftype) UnmarshalJSON(text []byte) (err error) {
	t.Type, err = tftypes.ParseJSONType(text) //lint:ignore SA1019 there is no other parser
	return err
}

func (p *provider) GetMetadata(context.Context, *tfprotov5.GetMetadataRequest) (*tfprotov5.GetMetadataResponse, error) {
	out := &tfprotov5.GetMetadataResponse{}
	for name := range p.resources {
		out.Resources = append(out.Resources, tfprotov5.ResourceMetadata{TypeName: name})
	}
	for name := range p.data {
		out.DataSources = append(out.DataSources, tfprotov5.DataSourceMetadata{TypeName: name})
	}
	return out, nil
}

func (p *provider) GetProviderSchema(context.Context, *tfprotov5.GetProviderSchemaRequest) (*tfprotov5.GetProviderSchemaResponse, error) {
	return &tfprotov5.GetProviderSchemaResponse{
		Provider: &tfprotov5.Schema{Block: &tfprotov5.SchemaBlock{
			Attributes: []*tfprotov5.SchemaAttribute{{Name: "region", Type: tftypes.String, Optional: true}},
		}},
		ResourceSchemas: p.resources, DataSourceSchemas: p.data,
	}, nil
}

func (p *provider) PrepareProviderConfig(_ context.Context, r *tfprotov5.PrepareProviderConfigRequest) (*tfprotov5.PrepareProviderConfigResponse, error) {
	return &tfprotov5.PrepareProviderConfigResponse{PreparedConfig: r.Config}, nil
}

func (p *provider) ConfigureProvider(context.Context, *tfprotov5.ConfigureProviderRequest) (*tfprotov5.ConfigureProviderResponse, error) {
	return &tfprotov5.ConfigureProviderResponse{}, nil
}

func (p *provider) StopProvider(context.Context, *tfprotov5.StopProviderRequest) (*tfprotov5.StopProviderResponse, error) {
	return &tfprotov5.StopProviderResponse{}, nil
}

func (p *provider) ValidateResourceTypeConfig(
	context.Context, *tfprotov5.ValidateResourceTypeConfigRequest,
) (*tfprotov5.ValidateResourceTypeConfigResponse, error) {
	return &tfprotov5.ValidateResourceTypeConfigResponse{}, nil
}

func (p *provider) ValidateDataSourceConfig(context.Context, *tfprotov5.ValidateDataSourceConfigRequest) (*tfprotov5.ValidateDataSourceConfigResponse, error) {
	return &tfprotov5.ValidateDataSourceConfigResponse{}, nil
}

func (p *provider) ReadDataSource(_ context.Context, r *tfprotov5.ReadDataSourceRequest) (*tfprotov5.ReadDataSourceResponse, error) {
	state, err := fill(r.TypeName, p.data[r.TypeName], r.Config, func(a *tfprotov5.SchemaAttribute, from string) tftypes.Value {
		return tftypes.NewValue(a.Type, from)
	})
	return &tfprotov5.ReadDataSourceResponse{State: state}, err
}

func (p *provider) PlanResourceChange(_ context.Context, r *tfprotov5.PlanResourceChangeRequest) (*tfprotov5.PlanResourceChangeResponse, error) {
	state, err := fill(r.TypeName, p.resources[r.TypeName], r.ProposedNewState, func(a *tfprotov5.SchemaAttribute, _ string) tftypes.Value {
		return tftypes.NewValue(a.Type, tftypes.UnknownValue)
	})
	return &tfprotov5.PlanResourceChangeResponse{PlannedState: state}, err
}

func (p *provider) ApplyResourceChange(_ context.Context, r *tfprotov5.ApplyResourceChangeRequest) (*tfprotov5.ApplyResourceChangeResponse, error) {
	state, err := fill(r.TypeName, p.resources[r.TypeName], r.PlannedState, func(a *tfprotov5.SchemaAttribute, from string) tftypes.Value {
		if a.Type.Is(tftypes.String) {
			return tftypes.NewValue(a.Type, from)
		}
		return tftypes.NewValue(a.Type, nil)
	})
	return &tfprotov5.ApplyResourceChangeResponse{NewState: state}, err
}

// ReadResource changes nothing: a resource is what was applied.
func (p *provider) ReadResource(_ context.Context, r *tfprotov5.ReadResourceRequest) (*tfprotov5.ReadResourceResponse, error) {
	return &tfprotov5.ReadResourceResponse{NewState: r.CurrentState}, nil
}

// UpgradeResourceState returns the state as it is: there is one version of each schema.
func (p *provider) UpgradeResourceState(_ context.Context, r *tfprotov5.UpgradeResourceStateRequest) (*tfprotov5.UpgradeResourceStateResponse, error) {
	kind := p.resources[r.TypeName].ValueType()
	state, err := r.RawState.Unmarshal(kind)
	if err != nil {
		return nil, err
	}
	upgraded, err := tfprotov5.NewDynamicValue(kind, state)
	return &tfprotov5.UpgradeResourceStateResponse{UpgradedState: &upgraded}, err
}

// fill sets the attributes of a resource that are computed and have no value yet.
func fill(
	kind string, s *tfprotov5.Schema, state *tfprotov5.DynamicValue,
	set func(a *tfprotov5.SchemaAttribute, from string) tftypes.Value,
) (*tfprotov5.DynamicValue, error) {
	v, err := state.Unmarshal(s.ValueType())
	if err != nil || v.IsNull() {
		return state, err
	}
	var attributes map[string]tftypes.Value
	if err := v.As(&attributes); err != nil {
		return nil, err
	}
	name := "current" // of a data source
	for _, attribute := range []string{"name", "alarm_name", "dashboard_name", "function_name"} {
		if own, ok := attributes[attribute]; ok && own.IsKnown() && !own.IsNull() {
			if err := own.As(&name); err != nil {
				return nil, err
			}
			break
		}
	}
	for _, a := range s.Block.Attributes {
		if v := attributes[a.Name]; a.Computed && (v.IsNull() || !v.IsKnown()) {
			attributes[a.Name] = set(a, kind+"."+name+"."+a.Name)
		}
	}
	out, err := tfprotov5.NewDynamicValue(s.ValueType(), tftypes.NewValue(s.ValueType(), attributes))
	return &out, err
}
