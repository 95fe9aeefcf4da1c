// SPDX-License-Identifier: Apache-2.0

package peers

import "fmt"

// memory is that of the function, in GB.
const memory = 0.5

// prices are list prices in dollars: on demand, us-east-1, the first tier, without a free tier.
var prices = struct{ request, gbSecond, writeUnit, readUnit float64 }{
	request:   0.20e-6,      // https://aws.amazon.com/lambda/pricing/
	gbSecond:  0.0000133334, // on ARM, from the same page
	writeUnit: 0.625e-6,     // https://aws.amazon.com/dynamodb/pricing/on-demand/
	readUnit:  0.125e-6,     // from the same page
}

// price returns the dollars for a million operations, if each is an invocation of so many microseconds.
func price(micros float64, t Traffic) float64 {
	one := prices.request + micros/1e6*memory*prices.gbSecond + t.Writes*prices.writeUnit + t.Reads*prices.readUnit
	return 1e6 * one
}

// bill returns the prices of a work, run by run.
func (r *Results) bill(work, contestant string) (all series) {
	for _, run := range r.Runs {
		if c, ok := run.Costs[work][contestant+"/"+plain]; ok {
			all = append(all, price(c.Billed, r.Traffic[work][contestant+"/"+plain]))
		}
	}
	return all
}

func (r *Results) list() string {
	return fmt.Sprintf("A million requests of Lambda cost $%.2f, a GB-second on ARM $%.10f ([AWS](https://aws.amazon.com/lambda/pricing/)), a\n"+
		"million write units $%.3f, and a million read units $%.3f\n([AWS](https://aws.amazon.com/dynamodb/pricing/on-demand/)).\n",
		1e6*prices.request, prices.gbSecond, 1e6*prices.writeUnit, 1e6*prices.readUnit)
}
