"""Rules, alerts and dashboards as code: one typed source for Prometheus, Grafana and the chart."""
