/* A plain C client: sizes and constants as C sees them, and calls that fail without a context. */
#include <lathe.h>
#include <stdio.h>
#include <string.h>

static int g_failed;

static void expect(int ok, const char* what) {
  if (ok) return;
  printf("failed: %s\n", what);
  g_failed = 1;
}

int main(void) {
  lathe_error error;
  lathe_context* ctx = NULL;
  lathe_graph* graph = NULL;
  lathe_context_options options = LATHE_CONTEXT_OPTIONS_INIT;
  memset(&error, 0, sizeof(error));
  expect(sizeof(lathe_tensor) == 48, "lathe_tensor has the size of a DLTensor");
  expect(lathe_version() == LATHE_VERSION_MAJOR * 10000 + LATHE_VERSION_MINOR * 100 + LATHE_VERSION_PATCH, "version");
  expect(strcmp(lathe_status_name(LATHE_INVALID), "INVALID") == 0, "status name");
  expect(lathe_graph_create(NULL, "g", &graph, &error) == LATHE_INVALID, "a null context is refused");
  expect(strcmp(error.arg_name, "ctx") == 0 && error.arg_index == 0, "and named");
  expect(graph == NULL, "and nothing written");
  options.max_isa = "none such";
  expect(lathe_context_create(&options, &ctx, NULL) == LATHE_INVALID, "an unknown level is refused");
  options.max_isa = "portable";
  expect(lathe_context_create(&options, &ctx, &error) == LATHE_OK, "a context");
  expect(lathe_seal(ctx, LATHE_SEAL_WARN, &error) == LATHE_OK, "sealed");
  lathe_context_destroy(ctx);
  lathe_context_destroy(NULL);
  return g_failed;
}
