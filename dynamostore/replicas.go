package dynamostore

import (
	"errors"
	"fmt"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/arn"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
)

// globalTables2017 is the first version of global tables. Their tables do not list
// their replicas.
const globalTables2017 = "2017.11.29"

// replicaProblems checks for global tables (developer guide, "How DynamoDB global
// tables work"). Neither kind gives the guarantees that a store needs.
func replicaProblems(t *types.TableDescription) []error {
	if t.MultiRegionConsistency == types.MultiRegionConsistencyStrong {
		return []error{errors.New("it is a global table with strong consistency (MRSC), which supports neither time to live nor transactions; use a table in one region")}
	}
	regions := otherRegions(t)
	if regions == nil && aws.ToString(t.GlobalTableVersion) == globalTables2017 {
		regions = []string{"other regions"}
	}
	if regions == nil {
		return nil
	}
	return []error{fmt.Errorf("it is a global table with eventual consistency (MREC), replicated to %s: each region evaluates conditions on its own copy, so the handler of a key can run in two regions; use a table in one region, or one table per region and send each key to one region", strings.Join(regions, ", "))}
}

// otherRegions returns the regions of the table's replicas without the table's own
// region, which a global table of a single region lists too.
func otherRegions(t *types.TableDescription) (regions []string) {
	own, _ := arn.Parse(aws.ToString(t.TableArn)) // if the ARN is invalid, every replica counts
	for _, r := range t.Replicas {
		if region := aws.ToString(r.RegionName); region != own.Region {
			regions = append(regions, region)
		}
	}
	return regions
}
