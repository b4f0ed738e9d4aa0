// Starts `hcp lsp` and connects it to scripts and YAML files.
"use strict";

const { workspace, window } = require("vscode");
const { LanguageClient } = require("vscode-languageclient/node");

let client;

async function activate() {
  const [command, ...args] = workspace.getConfiguration("hcp").get("command");
  client = new LanguageClient(
    "hcp",
    "hcp",
    { command, args },
    { documentSelector: [{ scheme: "file", language: "shellscript" }, { scheme: "file", language: "yaml" }] },
  );
  try {
    await client.start();
  } catch (error) {
    window.showErrorMessage(`hcp: ${command} could not be started (pip install 'megatron-hcp[lsp]'): ${error.message}`);
  }
}

async function deactivate() {
  await client?.stop();
}

module.exports = { activate, deactivate };
