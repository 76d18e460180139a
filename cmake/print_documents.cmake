# Writes the manual page and the completion scripts, which the program prints from its tables.
#
#   cmake -DKVOPT=PROGRAM -DFOLDER=FOLDER -P print_documents.cmake
function(print_document file)
  execute_process(COMMAND ${KVOPT} ${ARGN} OUTPUT_FILE ${FOLDER}/${file} COMMAND_ERROR_IS_FATAL ANY)
endfunction()
print_document(kvopt.1 help --man)
print_document(kvopt.bash completion bash)
print_document(_kvopt completion zsh)
print_document(kvopt.fish completion fish)
