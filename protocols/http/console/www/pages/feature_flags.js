/** Feature flags: tools of RabbitMQ look at them before they use what a flag brought. */

import { html } from "../vendor/preact.js";
import { Loading, Rows, useLoaded } from "../parts.js";
import { t } from "../words.js";

export default function FeatureFlags() {
  const found = useLoaded("/api/feature-flags", 60000);
  return html`<div><h1>${t("Feature flags")}</h1>
    <p class="quiet">${t("Tools of RabbitMQ ask for these. Each is enabled and none can be switched, as the gateway always does what it stands for.")}</p>
    <${Loading} of=${found} />
    ${found.data && html`<${Rows} label=${t("Feature flags")} rows=${found.data} columns=${[
      [t("Name"), (one) => html`<code>${one.name}</code>`], [t("State"), (one) => one.state],
      [t("Stands for"), (one) => one.desc], [t("Provided by"), (one) => one.provided_by],
    ]} />`}</div>`;
}
