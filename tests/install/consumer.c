/* A program outside kvopt's tree, in C11: rewrites a model, saves it, and decodes 16 tokens. */
#include <kvopt/kvopt.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

static void check(kvopt_error* error) {
  if (!error)
    return;
  fprintf(stderr, "%s: %s\n", kvopt_error_code(error), kvopt_error_text(error));
  kvopt_error_free(error);
  exit(1);
}

int main(int argc, char** argv) {
  kvopt_option form[] = {{"to", "kvopt"}, {"verify", "quick"}};
  kvopt_option room[] = {{"capacity", "32"}};
  kvopt_model *model = NULL, *written = NULL;
  kvopt_result* result = NULL;
  kvopt_session* session = NULL;
  int64_t prompt[] = {1, 2, 3}, token = 0;
  if (argc != 3)
    return 2;
  check(kvopt_model_open(argv[1], NULL, 0, &model));
  check(kvopt_rewrite(model, form, 2, NULL, &result));
  check(kvopt_result_save(result, argv[2], NULL, 0, NULL));
  check(kvopt_model_open(argv[2], NULL, 0, &written));
  check(kvopt_session_create(written, 1, room, 1, &session));
  for (int step = 0; step < 16; ++step) {
    check(kvopt_session_feed(session, step == 0 ? prompt : &token, step == 0 ? 3 : 1));
    check(kvopt_session_choose(session, 0, NULL, 0, &token));
    printf("%s%" PRId64, step == 0 ? "" : ",", token);
  }
  printf("\n");
  kvopt_session_free(session);
  kvopt_model_free(written);
  kvopt_result_free(result);
  kvopt_model_free(model);
  return 0;
}
